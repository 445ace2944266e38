"""What is sent: remoting commands, frames, request headers, handles and names."""
