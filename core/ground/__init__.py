"""What every room stands on: the one home of files, locks, parcels, children and waits."""
