"""A process gives up what it does not need: files, ports and signals (Landlock), calls (seccomp).

Neither needs a privilege, both hold for the thread that enters and for all that it starts, and
nothing takes them back. `profiles.toml` says what each kind of process keeps.
"""
