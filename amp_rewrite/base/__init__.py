"""Names, tables, versions and arguments: what every room above uses."""
