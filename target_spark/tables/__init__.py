"""Tables over time: legal names, columns that change, and rows laid out as the table's columns."""
