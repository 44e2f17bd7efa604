"""Documents that people write: YAML with the line of each key, sections, and what is wrong."""
