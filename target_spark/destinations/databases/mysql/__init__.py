"""MySQL and MariaDB as destinations; `databases.sink` names them."""
