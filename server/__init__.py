"""The server: lets people and programs in over a WebSocket."""
