"""What people see of a run: the live page and the report, from one set of templates."""
