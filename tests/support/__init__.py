"""What several test folders share; each module works on the oracle and on the engine alike."""
