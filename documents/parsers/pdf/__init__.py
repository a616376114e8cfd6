"""PDF: characters from PDFium (or MuPDF), put in order, with tables, margins and pictures."""
