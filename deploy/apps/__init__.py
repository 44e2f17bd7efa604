"""`fab app`: a new app from a template, and what a training of an app will need and gain."""
