"""A server under thousands of requests, most of them rude, whose engine is killed now and then."""
