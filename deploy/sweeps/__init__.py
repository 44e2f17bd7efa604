"""What a sweep will take, before it begins."""
