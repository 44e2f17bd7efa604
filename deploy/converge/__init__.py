"""Facts, plan, apply, verify: what is true of each node, what the inventory wants, the steps from one to the other."""
