"""What people look at: the live page and the report, both drawn from a RunView."""
