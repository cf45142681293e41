"""What differs between the supported releases of Spark, and what replaces what one lacks."""
