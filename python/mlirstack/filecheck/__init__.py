"""The test kit around FileCheck: a lint for directives, and a writer of directives from a tool's output."""
