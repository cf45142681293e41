"""What happens to records between reading and writing; pure processors that compose."""
