"""XLNet (Yang et al. 2019): relative attention, segments by equality, and two streams."""
