"""Calls of tools, and reasoning: how models write them, and grammars that make models do so."""
