"""PostgreSQL as a destination, by binary COPY; `databases.sink` names it."""
