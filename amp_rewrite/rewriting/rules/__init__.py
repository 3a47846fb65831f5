"""Rules of users: objects that are asked about nodes, and generators as the built-in rules are."""
