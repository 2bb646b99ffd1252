"""Changes of a database as a source: positions, what a start decides, cuts, and what a change looks like. Pure."""
