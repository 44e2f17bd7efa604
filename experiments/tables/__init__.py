"""The pages that put the papers' tables beside our results."""
