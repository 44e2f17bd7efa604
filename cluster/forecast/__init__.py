"""What a training takes on other numbers of nodes: measured costs, a simulation, a table."""
