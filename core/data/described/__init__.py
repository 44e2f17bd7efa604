"""Labelled time series in anybody's files, as a description says that they are written."""
