"""What guesses are worth: at a forced share of right ones, on texts, and on random ones."""
