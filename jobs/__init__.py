"""How any worker claims work: leases on rows, heartbeats, the reaper, wake-ups."""
