"""Coordinators that a benchmark of the same name starts as processes of their own."""
