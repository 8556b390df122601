"""What a request asks: its prompt, its parameters, and which tokens may come next."""
