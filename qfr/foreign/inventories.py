"""Tools of the user simulator that published domains have, for files that do not say so themselves."""

from __future__ import annotations

# The customer's phone in tau2-bench's telecom domain (Barres et al. 2025, arXiv:2506.07982): 30 tools.
TELECOM = frozenset(
    {
        "can_send_mms", "check_apn_settings", "check_app_permissions", "check_app_status",
        "check_data_restriction_status", "check_installed_apps", "check_network_mode_preference",
        "check_network_status", "check_payment_request", "check_sim_status", "check_status_bar",
        "check_vpn_status", "check_wifi_calling_status", "check_wifi_status", "connect_vpn", "disconnect_vpn",
        "grant_app_permission", "make_payment", "reboot_device", "reseat_sim_card", "reset_apn_settings",
        "run_speed_test", "set_apn_settings", "set_network_mode_preference", "toggle_airplane_mode",
        "toggle_data", "toggle_data_saver_mode", "toggle_roaming", "toggle_wifi", "toggle_wifi_calling",
    }
)  # fmt: skip


def user_tools_of(domain: str) -> frozenset[str]:
    """Return the user's tools of a published domain; empty where it has none or is not known."""
    return TELECOM if domain.startswith("telecom") else frozenset()
