"""The page that shows a phone what its own sensors say: HTML, styles and scripts."""
