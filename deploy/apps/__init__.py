"""`fab app new`: a new app from a template."""
