"""One small HTTP server, one HTTP client, and the rules of who may call what (docs/security.md)."""
