"""The files of deploy/: what can be checked without a container runtime and without Kubernetes."""
