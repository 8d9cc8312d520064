"""Tests of the GPU engine, and a device for them that is the processor."""
