"""What every room of deploy/ may use and what uses none of them."""
