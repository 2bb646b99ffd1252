"""Progress as cells with compare-and-set, in the sink itself: for sinks that commit rows and progress in one step."""
