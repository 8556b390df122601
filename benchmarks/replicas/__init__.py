"""Many replicas behind a router: goodput by the router's rule."""
