"""Pure contracts and decisions: no clock, no network, no threads, no client library."""
