"""Delta tables, by path or in a catalog; `destination_declaration` names its factory."""
