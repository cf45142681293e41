"""Tables over time: legal names, changing columns, and rows projected to the columns."""
