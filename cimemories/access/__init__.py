"""Who may reach the app over the network. It knows neither Streamlit nor the pages: app.py puts them together."""
