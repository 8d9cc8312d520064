"""The GPU engine: encodes on a device, segment by segment."""
