"""Rules by the thousand over one stream: the texts they ask for found in one scan, only hits put to the rules themselves."""
