"""Results of finished experiments, and the tables that the pages show of them."""
