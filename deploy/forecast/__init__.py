"""What a training of an app or a sweep will take, from a moment of it on this machine."""
