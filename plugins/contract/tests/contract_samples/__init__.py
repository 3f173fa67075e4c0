"""Healthy and broken plug-ins for the tests of the contract suite."""
