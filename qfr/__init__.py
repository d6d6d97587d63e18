"""qfr: which quantization preset of a model can be deployed as a tool-using agent, and how sure is that?"""

__version__ = "0.1.0"
