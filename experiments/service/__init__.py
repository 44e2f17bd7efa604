"""The recognition service by what it costs.

Live sessions, requests, processes, places, and Triton beside it.
"""
