"""The recognition service by what it costs: live sessions, requests, processes, places, and Triton beside it."""
