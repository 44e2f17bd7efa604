"""Finished experiments and the tables of papers: `python -m experiments.NAME`.

Nothing imports them.

Their results lie in `experiments/results/`, and docs/results.md says what they showed.
"""
