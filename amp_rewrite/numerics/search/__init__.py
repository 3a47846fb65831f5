"""Localise and tune: which nodes have to stay float32."""
